#!/bin/sh
# Runs the program that is its first argument, with the others: a test that is another test's program
# in another environment.
exec "$@"
