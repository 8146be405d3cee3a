"""What the project is built and checked with. boot, install and pins need nothing but Python itself."""
