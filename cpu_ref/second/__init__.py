"""The second implementation: derived again from the profile documents, sharing no code with the rest of `cpu_ref`.

Where the reference multiplies rows in arbitrary precision, this one streams over the columns k in NumPy's fixed-width
integers: `C += outer(A[:, k], B[k, :])`. Every sum is formed twice: once modulo the word, once as two halves of each
product that cannot overflow. The halves give the true value, and both must agree.
"""
