"""What operators become, family by family: dims, work and traffic, worked out by hand."""
