"""How PPO's default settings were chosen: percent of the optimum on random problems kept for this.

    python -m benchmarks rl_choice

The paper's settings (one learning rate of 5e-4 here, since Stable-Baselines3 has one optimiser) are among them.
"""

from benchmarks.bench_rl_random import random_problems, shares_of_optimum, summary
from evenhand.learning import PPOLearner

CHOICES = {
    "default": PPOLearner(),
    "the paper's rate 5e-4": PPOLearner(learning_rate=5e-4),
    "rate 3e-3": PPOLearner(learning_rate=3e-3),
    "first deviation exp(-1)": PPOLearner(log_std=-1.0),
    "first deviation 1": PPOLearner(log_std=0.0),
    "ten epochs": PPOLearner(epochs=10),
    "lambda 0.9": PPOLearner(gae_lambda=0.9),
}


def main() -> None:
    problems = random_problems(100, rounds=1)
    for name, learner in CHOICES.items():
        print(f"{name:<28} {summary(shares_of_optimum(problems, {'algorithm': learner}, show=False))}", flush=True)


if __name__ == "__main__":
    main()
