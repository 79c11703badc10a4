#include "platform/mapped_pages.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

constexpr size_t kPages = 64;

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// How many of the pages are in this process's memory (present, not merely in the system's cache).
size_t PresentPages(std::span<const std::byte> bytes) {
  size_t present = 0;
  const int file = open("/proc/self/pagemap", O_RDONLY);
  for (size_t i = 0; i < bytes.size(); i += PageBytes()) {
    uint64_t entry = 0;
    const uintptr_t page = reinterpret_cast<uintptr_t>(bytes.data() + i) / PageBytes();
    if (pread(file, &entry, sizeof(entry), static_cast<off_t>(page * sizeof(entry))) == 8) {
      present += entry >> 63;
    }
  }
  close(file);
  return present;
}

int64_t Sum(std::span<const std::byte> bytes) {
  int64_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<int64_t>(byte);
  return sum;
}

TEST(MappedPages, ReleasedPagesLeaveTheProcessAndComeBackFromTheFile) {
  const std::string path = testing::TempDir() + "/pages";
  ASSERT_TRUE(
      RealFileSystem().WriteFileAtomically(path, std::string(kPages * PageBytes(), '\3')).ok());
  const auto file = RealFileSystem().MapFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::span<const std::byte> bytes((*file)->data(), (*file)->size());
  EXPECT_EQ(Sum(bytes), static_cast<int64_t>(3 * kPages * PageBytes()));
  EXPECT_EQ(PresentPages(bytes), kPages);
  ReleaseMappedPages(bytes.subspan(1, bytes.size() / 2));
  EXPECT_EQ(PresentPages(bytes), kPages / 2 + 1);  // not the page that holds another's first byte
  EXPECT_EQ(Sum(bytes), static_cast<int64_t>(3 * kPages * PageBytes()));
}

TEST(MappedPages, OtherMemoryIsLeftAlone) {
  std::vector<std::byte> bytes(kPages * PageBytes(), std::byte{5});
  ReleaseMappedPages(bytes);
  EXPECT_EQ(Sum(bytes), static_cast<int64_t>(5 * bytes.size()));
}

}  // namespace
}  // namespace weft
