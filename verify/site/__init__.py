"""``./inv docs``: the pages of the documentation as a site, and the reference pages that are made from the code."""
