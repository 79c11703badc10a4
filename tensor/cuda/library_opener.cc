#include "tensor/cuda/library_opener.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>

namespace weft {
namespace {

class DynamicLoader final : public LibraryOpener {
 public:
  absl::StatusOr<void*> Open(const std::string& path) override {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* const reason = dlerror();
    return absl::NotFoundError(reason == nullptr ? "the loader gives no reason" : reason);
  }
  void* Symbol(void* library, const std::string& name) override {
    return dlsym(library, name.c_str());
  }
  std::string PathOf(void* library) override {
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
    return map->l_name;
  }
  bool Exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }
  std::string Environment(const std::string& name) override {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  }
};

}  // namespace

LibraryOpener& SystemLibraryOpener() {
  static LibraryOpener* const opener = new DynamicLoader;
  return *opener;
}

}  // namespace weft
