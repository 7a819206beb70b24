# Alpha on a machine with an NVIDIA GPU and the NVIDIA Container Toolkit.
#
#     docker build --tag alpha .
#     docker run --rm --gpus all alpha                                      # checks the installation
#     docker run --rm --gpus all alpha make test                            # every test, those of the GPU, too
#     docker run --rm --gpus all --shm-size 1g --volume "$PWD/runs:/alpha/runs" alpha make train
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04

# Ubuntu 24.04 has Python 3.12. The C++ compiler builds pycuda and the kernels of the emulated driver.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ gdb make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /alpha
ENV PATH=/alpha/.venv/bin:$PATH CUDA_HOME=/usr/local/cuda ALPHA_CACHE_DIR=/var/cache/alpha
COPY . .
RUN python3 -m venv .venv \
    && pip install --no-cache-dir --editable '.[cuda,plot,test]' \
    && touch .venv/test.stamp .venv/train.stamp

CMD ["alpha-doctor"]
