#include "tensor/testing/fake_library_opener.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::testing {

void FakeLibraryOpener::Add(const std::string& path, std::map<std::string, void*> functions,
                            const std::string& found_at) {
  libraries_[path] = std::make_unique<Library>(Library{std::move(functions), found_at});
}

absl::StatusOr<void*> FakeLibraryOpener::Open(const std::string& path) {
  tried_.push_back(path);
  const auto found = libraries_.find(path);
  if (found != libraries_.end()) return found->second.get();
  return absl::NotFoundError(absl::StrCat(
      path, broken_.contains(path) ? ": invalid ELF header" : ": cannot open shared object file"));
}

void* FakeLibraryOpener::Symbol(void* library, const std::string& name) {
  const auto& functions = static_cast<const Library*>(library)->functions;
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

std::string FakeLibraryOpener::PathOf(void* library) {
  return static_cast<const Library*>(library)->found_at;
}

bool FakeLibraryOpener::Exists(const std::string& path) {
  return libraries_.contains(path) || broken_.contains(path);
}

std::string FakeLibraryOpener::Environment(const std::string& name) {
  const auto found = environment_.find(name);
  return found == environment_.end() ? "" : found->second;
}

}  // namespace weft::testing
