"""Train three objectives on the same texts, with three seeds each, and write a LaTeX table that compares them.

    python compare_objectives.py faq.csv queries.csv sentence-transformers/all-MiniLM-L6-v2 head_to_head

faq.csv has the columns question and answer; queries.csv is for the evaluation, with the columns query and document.
Supervised contrastive learning uses the pairs; SimCSE and TSDAE use the same texts without knowing which answer belongs
to a question. Keys of `contrastive-encoders train` may follow, such as batch_size=64.
"""

import csv
import sys
from pathlib import Path

from contrastive_encoders import PairsConfig, SimCSEConfig, TSDAEConfig, evaluate, train
from contrastive_encoders.cli.main import main

if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    train_file, evaluation_file, backbone, output = sys.argv[1:5]
    overrides = ["max_steps=100", *sys.argv[5:]]
    with Path(train_file).open(newline="", encoding="utf-8") as file:
        pairs = [(row["question"], row["answer"]) for row in csv.DictReader(file)]
    texts = [text for pair in pairs for text in pair]

    arms = {"pairs": (pairs, PairsConfig()), "simcse": (texts, SimCSEConfig()), "tsdae": (texts, TSDAEConfig())}
    for name, (rows, model) in arms.items():
        for seed in (1, 2, 3):
            keys = {"backbone": backbone, "name": name, "seed": seed, "output_dir": f"{output}/{name}-{seed}"}
            train(rows, model=model, evaluation__custom_tasks=evaluation_file, overrides=overrides, **keys)
    evaluate(backbone, custom_tasks=evaluation_file, name="untrained", output=f"{output}/untrained.json")

    main(["compare", f"runs=[{output}/*-*,{output}/untrained.json]", f"output={output}/comparison"])
    print(Path(output, "comparison", "table.tex").read_text())
