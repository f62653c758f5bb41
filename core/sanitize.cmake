# Apply the sanitizers of TILTH_SANITIZE to all targets defined after this file.
set(TILTH_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them")
if(TILTH_SANITIZE)
  add_compile_options(-fsanitize=${TILTH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${TILTH_SANITIZE})
endif()
