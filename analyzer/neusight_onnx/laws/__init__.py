"""Laws of the hardware, a module or folder a kernel class: pure numpy over columns of kernels, constants fitted."""
