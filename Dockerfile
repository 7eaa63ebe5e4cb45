# The project with all that its commands need, for nodes of a cluster.
#   docker build -t contrastive-encoders .                                     CPU
#   docker build -t contrastive-encoders --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 .
#   docker run contrastive-encoders contrastive-encoders train experiment=quickstart
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

WORKDIR /app
COPY constraints.txt pyproject.toml README.md LICENSE ./
# torch alone first, from an index of one build: what follows takes it as it is
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --editable '.[cluster,documents,gguf,lora,quickstart,retrieval,s3,server,sweep,translation]'

CMD ["contrastive-encoders", "train", "experiment=quickstart"]
