"""What a run did, operator by operator: ETDump and ETRecord, read through upstream's Inspector."""
