"""Tools that build and check the project. boot, install and pins need the standard library only."""
