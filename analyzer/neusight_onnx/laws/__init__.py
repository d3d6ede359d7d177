"""Laws of the hardware, one module a kernel class: pure numpy over columns of kernels, constants fitted."""
