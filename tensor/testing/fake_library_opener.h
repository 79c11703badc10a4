// Shared libraries that are not there, for tests of what opens them.
#ifndef WEFT_TENSOR_TESTING_FAKE_LIBRARY_OPENER_H_
#define WEFT_TENSOR_TESTING_FAKE_LIBRARY_OPENER_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tensor/cuda/library_opener.h"

namespace weft::testing {

// Paths and bare names that open, with the functions that they have. Thread-compatible.
class FakeLibraryOpener final : public LibraryOpener {
 public:
  // `path` opens, and is found at `found_at` (for bare names). Functions are pointers to them.
  void Add(const std::string& path, std::map<std::string, void*> functions,
           const std::string& found_at = "");
  // A file that is there and does not open.
  void AddBroken(const std::string& path) { broken_.insert(path); }
  void SetEnvironment(const std::string& name, const std::string& value) {
    environment_[name] = value;
  }
  // What was tried, in order.
  const std::vector<std::string>& tried() const { return tried_; }

  absl::StatusOr<void*> Open(const std::string& path) override;
  void* Symbol(void* library, const std::string& name) override;
  std::string PathOf(void* library) override;
  bool Exists(const std::string& path) override;
  std::string Environment(const std::string& name) override;

 private:
  struct Library {
    std::map<std::string, void*> functions;
    std::string found_at;
  };

  std::map<std::string, std::unique_ptr<Library>> libraries_;
  std::set<std::string> broken_;
  std::map<std::string, std::string> environment_;
  std::vector<std::string> tried_;
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_FAKE_LIBRARY_OPENER_H_
