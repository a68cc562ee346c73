"""Cases from the tests and documentation of other tools, one file for each tool. Only their behaviour is taken over."""
