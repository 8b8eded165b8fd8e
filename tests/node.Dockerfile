# What a node of the acceptance tests runs on with `--engine docker`.
FROM python:3.11-slim
WORKDIR /package
COPY pyproject.toml README.md LICENSE ./
COPY celery_atomicity celery_atomicity
# The app of a node imports the tasks of pytest-celery.
RUN pip install --no-cache-dir . "celery==5.7.0" "pytest-celery==1.3.0" "psutil>=5.9" gevent eventlet
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
