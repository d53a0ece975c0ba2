# tauflow with its CPU kernels compiled, so that no first call waits for them:
#   docker build -t tauflow .
#   docker run --rm -v "$PWD:/data" tauflow run visits.csv --id patient --time hours --target died
FROM python:3.12-slim

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_NUM_THREADS=1
COPY pyproject.toml README.md LICENSE /build/
COPY src /build/src
RUN pip install '/build[tables,sklearn]' && rm -r /build \
    && useradd --create-home user
USER user
# For the kind of processor that the image is built on; others compile when a kernel is first used.
RUN tauflow precompile
WORKDIR /data
ENTRYPOINT ["tauflow"]
CMD ["--help"]
