"""The training side: a causal LM as RLModule, micro-batching, and the Learner that optimises the four-axis objective."""
