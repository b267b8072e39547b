# Nothing can be written beside the answer.
chmod 555 /app
