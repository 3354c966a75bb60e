"""``./inv self.docs``: the pages of the documentation as a site, and a page of all commands."""
