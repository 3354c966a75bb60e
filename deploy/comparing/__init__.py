"""``./inv compare``: one model in several schemes, on several devices and engines: what each costs and loses."""
