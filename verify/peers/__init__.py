"""The engine lean beside other runtimes, as their wheels come: twelve nets, in fp32 and in 8 bits."""
