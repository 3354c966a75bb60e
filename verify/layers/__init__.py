"""``./inv self.lab``: layers in every data type on devices, two ways in turns, and one report of what differs."""
