# Two stages: the first builds an environment with the service, the second carries it and nothing else.

FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/dpledger
# Pinned with hashes (make lock), and in a layer of its own: it changes more rarely than the service does.
COPY deploy/requirements.lock ./
RUN /opt/dpledger/bin/pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY migrations migrations
RUN /opt/dpledger/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
RUN groupadd --system --gid 10001 dpledger \
    && useradd --system --uid 10001 --gid dpledger --no-create-home dpledger \
    && install --directory --owner=dpledger --group=dpledger /var/lib/dpledger
COPY --from=build /opt/dpledger /opt/dpledger
ENV PATH=/opt/dpledger/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DPLEDGER_DATABASE=sqlite:////var/lib/dpledger/budget.db
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/dpledger
VOLUME /var/lib/dpledger
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["dpledger"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
