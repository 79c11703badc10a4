// A library to be loaded before all others (LD_PRELOAD): calls that change files below a folder are
// counted, and one of them fails with EIO, or is the last thing that the process does.
//
//   WEFT_FAULTY_FOLDER  the folder; without it, nothing is changed
//   WEFT_FAULTY_CALL    which call, from 0
//   WEFT_FAULTY_HOW     "eio", or "kill": SIGKILL in the middle of the call
//   WEFT_FAULTY_LOG     a file that gets the name of the call that was struck
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace {

std::string Setting(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string PathOf(int file) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = readlink(link.c_str(), path, sizeof(path));
  return length < 0 ? "" : std::string(path, static_cast<size_t>(length));
}

bool IsWatched(const std::string& path) {
  static const std::string* const folder = new std::string(Setting("WEFT_FAULTY_FOLDER"));
  return !folder->empty() && path.find(*folder) != std::string::npos;
}

void Note(const char* call) {
  const int file = open(Setting("WEFT_FAULTY_LOG").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file < 0) return;
  const std::string line = std::string(call) + "\n";
  // Not through our own write.
  syscall(SYS_write, file, line.data(), line.size());
  syscall(SYS_close, file);
}

// Whether this call, of a path or of a file's path, is to fail; does not return where it is to
// kill.
bool Strikes(const char* call, const std::string& path) {
  static std::atomic<int> calls{0};
  static const int wanted = atoi(Setting("WEFT_FAULTY_CALL").c_str());
  if (!IsWatched(path) || calls.fetch_add(1) != wanted) return false;
  Note(call);
  if (Setting("WEFT_FAULTY_HOW") == "kill") kill(getpid(), SIGKILL);
  errno = EIO;
  return true;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  if (IsWatched(PathOf(file)) && Strikes("write", PathOf(file))) {
    // Half of it has come to the disk.
    if (count > 1) next(file, bytes, count / 2);
    errno = EIO;
    return -1;
  }
  return next(file, bytes, count);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  if (IsWatched(PathOf(file)) && Strikes("pwrite", PathOf(file))) {
    // Half of it has come to the disk.
    if (count > 1) next(file, bytes, count / 2, offset);
    errno = EIO;
    return -1;
  }
  return next(file, bytes, count, offset);
}

int fallocate(int file, int mode, off_t offset, off_t count) {
  static const auto next = Next<int (*)(int, int, off_t, off_t)>("fallocate");
  return Strikes("fallocate", PathOf(file)) ? -1 : next(file, mode, offset, count);
}

int fsync(int file) {
  static const auto next = Next<int (*)(int)>("fsync");
  return Strikes("fsync", PathOf(file)) ? -1 : next(file);
}

int fdatasync(int file) {
  static const auto next = Next<int (*)(int)>("fdatasync");
  return Strikes("fdatasync", PathOf(file)) ? -1 : next(file);
}

int rename(const char* from, const char* to) noexcept {
  static const auto next = Next<int (*)(const char*, const char*)>("rename");
  return Strikes("rename", to) ? -1 : next(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  static const auto next = Next<int (*)(int, const char*, int, const char*)>("renameat");
  return Strikes("renameat", PathOf(to_folder) + "/" + to) ? -1
                                                           : next(from_folder, from, to_folder, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto next = Next<int (*)(const char*, mode_t)>("mkdir");
  return Strikes("mkdir", path) ? -1 : next(path, mode);
}

int unlink(const char* path) noexcept {
  static const auto next = Next<int (*)(const char*)>("unlink");
  return Strikes("unlink", path) ? -1 : next(path);
}

int rmdir(const char* path) noexcept {
  static const auto next = Next<int (*)(const char*)>("rmdir");
  return Strikes("rmdir", path) ? -1 : next(path);
}

}  // extern "C"
