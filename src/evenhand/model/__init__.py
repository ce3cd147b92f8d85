"""What the problem is: frozen data, no algorithm, no randomness.

Arm, ArmTables (many arms as padded arrays), CoupledMDP, TabularMDP, the welfare functions, the Policy protocols,
and model files in and out.
"""
