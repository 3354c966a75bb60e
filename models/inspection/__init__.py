"""What a run did, operator by operator: ETDump and ETRecord, read by upstream's readers."""
