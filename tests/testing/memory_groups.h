// Memory control groups, one for each worker process of a test.
#ifndef WEFT_TESTS_TESTING_MEMORY_GROUPS_H_
#define WEFT_TESTS_TESTING_MEMORY_GROUPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft::testing {

// Makes groups below this process's own, of version 1 or 2, and removes them in the end, when the
// workers are gone.
class MemoryGroups {
 public:
  // One group per worker, each with a hard limit if `limit_bytes` is not 0. Null, and `why`, where
  // none can be made (no root, no memory controller).
  static std::unique_ptr<MemoryGroups> Create(int workers, int64_t limit_bytes, std::string& why);
  ~MemoryGroups();
  MemoryGroups(const MemoryGroups&) = delete;
  MemoryGroups& operator=(const MemoryGroups&) = delete;

  // The command of LocalClusterOptions that starts `program` as a worker inside its group.
  std::vector<std::string> Command(const std::string& program) const;
  // The most that worker's group was ever charged: anonymous memory, page tables and sockets, and
  // the file pages that it was the first to touch.
  int64_t PeakBytes(int worker) const;

 private:
  MemoryGroups() = default;
  std::string folder_;
  std::string peak_file_;
  int workers_ = 0;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_TESTING_MEMORY_GROUPS_H_
