#include "ops/custom/loaded_libraries.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/mutex.h"

namespace weft {
namespace {

// What is known of the libraries of this process.
struct Loaded {
  Mutex mutex;
  std::vector<OpLibrary> libraries ABSL_GUARDED_BY(mutex);
  std::map<std::pair<std::string, std::string>, const WeftOpDescriptor*> ops ABSL_GUARDED_BY(mutex);
};

Loaded& Global() {
  static Loaded* const loaded = new Loaded;
  return *loaded;
}

}  // namespace

void AddLoadedLibrary(OpLibrary library, const WeftOpLibrary& description) {
  Loaded& loaded = Global();
  MutexLock lock(loaded.mutex);
  const std::set<std::string> names(library.ops.begin(), library.ops.end());
  for (uint32_t k = 0; k < description.num_ops; ++k) {
    const WeftOpDescriptor& op = description.ops[k];
    if (!names.contains(absl::StrCat(op.domain, "::", op.name))) continue;
    loaded.ops[{op.domain, op.name}] = &op;
  }
  loaded.libraries.push_back(std::move(library));
}

std::vector<OpLibrary> LoadedOpLibraries() {
  Loaded& loaded = Global();
  MutexLock lock(loaded.mutex);
  return loaded.libraries;
}

std::vector<std::string> OpLibraryIdentities() {
  std::vector<std::string> identities;
  for (const OpLibrary& library : LoadedOpLibraries()) {
    identities.push_back(absl::StrCat(std::filesystem::path(library.path).filename().string(), " ",
                                      library.checksum));
  }
  return identities;
}

const WeftOpDescriptor* FindCustomOp(const std::string& domain, const std::string& name) {
  Loaded& loaded = Global();
  MutexLock lock(loaded.mutex);
  const auto op = loaded.ops.find({domain, name});
  return op == loaded.ops.end() ? nullptr : op->second;
}

}  // namespace weft
