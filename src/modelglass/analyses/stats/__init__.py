"""What the weights are like, and what is wrong with them: one pass over values that come as numpy arrays.

`layouts` knows what stored bytes mean, `plain` and `compiled` are the inner loops, `fold` reads a part of a
tensor into a `partial` result, `engine` lets threads do that to all tensors, `statistics` is the way in and
`findings` draws conclusions.
"""
