"""A running cluster from the outside: kubectl and official clients, as a user would."""
