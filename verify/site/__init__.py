"""``./inv self.docs``: the pages of the documentation as a site, and reference pages that are made from the code."""
