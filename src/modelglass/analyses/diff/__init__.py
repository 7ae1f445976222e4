"""What became of the values of one model in another: figures in one streamed pass, then what explains them.

`pairing` says which elements are each other's counterparts, `figures` compares two arrays, `stream` does that
to all pairs with bounded memory, and `diff` is the way in.
"""
