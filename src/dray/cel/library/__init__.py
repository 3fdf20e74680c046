"""The function libraries, one file each; every function is declared once, with signature, cost and implementation."""
