"""Policies played by shards: arms stay where they are, and a driver that holds a few numbers an arm asks them.

scoring    what a policy's order of service is, arm by arm
resident   `Shard`: some arms being played; it follows a log of decisions, and can be lost and built again
driving    `play`: the order of all arms, a step by one histogram and one merge
measuring  `evaluate_arms`: values, welfare and errors; what is written by row
weighing   welfare of one value an arm, with little memory
checking   `check_arms`: what a table says, and every fault
indexing   `index_arms`: Whittle indices, streamed
plans      tables of results that can be acted by: `act_on_arms`
naming     numbers and names of rows, some at a time
"""
