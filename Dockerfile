# Two images from one file: `--target api` and `--target runner`. Neither holds the embedded
# mongod or a development tool.

FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PATH=/venv/bin:$PATH
WORKDIR /app

FROM base AS libraries
COPY requirements.txt .
RUN python -m venv /venv \
    && pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements.txt

FROM base AS api
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin judge
COPY --from=libraries /venv /venv
COPY app.py cli.py domain_queue.py gunicorn_conf.py housekeeping.py http_worker.py local.py logs.py ./
COPY serve.py settings.py zipcheck.py ./
COPY api api
COPY commands commands
COPY console console
COPY dispatch dispatch
COPY mongo mongo
USER judge
ENV HOST=0.0.0.0 PORT=8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD \
    ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['PORT']}/readyz\", timeout=4)"]
# Without a database of its own this image would keep everything in memory: refuse instead.
CMD ["sh", "-c", ": \"${MONGODB_URI:?must name the database}\"; exec python serve.py"]

FROM base AS runner
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap libseccomp2 gcc g++ libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=libraries /venv /venv
COPY runner runner
COPY zipcheck.py ./
ENV RUNNER_CACHE_DIR=/var/cache/judge-runner
# Stays root inside the container, to give each job slot a user of its own (see the compose file
# for how little root may do there). Programs of students never run as root.
CMD ["python", "-m", "runner"]
