"""Sound programs of many kinds, made by upstream's exporter alone: all that it makes and upstream's runtime runs."""
