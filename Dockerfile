# UNTESTED: written with care and read against hadolint's rules, but never built by the project's own checks.
# Builds retcon from its wheel and serves a store in the volume /data at port 8700.
#
#   docker build -t retcon . && docker run --rm -v retcon:/data retcon retcon keys add --user-id ann
#   docker run --rm -p 127.0.0.1:8700:8700 -v retcon:/data retcon
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY requirements/core.lock requirements/core.lock
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/core.lock
COPY pyproject.toml README.md LICENSE ./
COPY retcon retcon
RUN /venv/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.13-slim-bookworm
COPY requirements/server.lock /tmp/server.lock
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /tmp/server.lock \
    && pip install --no-cache-dir --no-deps /wheels/*.whl \
    && rm -r /wheels /tmp/server.lock \
    && useradd --no-log-init --create-home --uid 10001 retcon \
    && install -d -o retcon -g retcon -m 700 /data
USER retcon
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8700
ENV RETCON_DB=/data/agent.db
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/health', timeout=4)"]
STOPSIGNAL SIGTERM
CMD ["retcon", "serve", "--host", "0.0.0.0", "--port", "8700"]
