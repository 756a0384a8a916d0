"""Pure: from spec and facts to a launch plan, and from a launch plan to phases of actions."""
