"""Third-party kernels: recording their launches and adopting their autotuners."""
