@echo off
rem Slipway runs on Linux and macOS. On Windows that is the Windows Subsystem for Linux (WSL); see docs/build.md#hosts.
>&2 echo Slipway does not run on Windows itself.
>&2 echo Cause: its compilers, emulators and virtual devices need Linux
>&2 echo Try: in the Windows Subsystem for Linux (wsl --install -d Debian), from this folder: ./inv %*
exit /b 4
