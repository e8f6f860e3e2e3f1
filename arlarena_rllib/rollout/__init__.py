"""Episodes: prompts in, sampled tokens out, one asyncio task per episode, failures as data."""
