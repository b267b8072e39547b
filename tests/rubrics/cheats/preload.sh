# A library that the loader would put into every process; only root can, elsewhere this changes nothing.
printf 'not an ELF file' >/app/forge.so
echo /app/forge.so 2>/dev/null >/etc/ld.so.preload
true
