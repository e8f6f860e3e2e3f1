"""What a user runs: experiments, tracking, progress and pictures; only composes the two packages."""
