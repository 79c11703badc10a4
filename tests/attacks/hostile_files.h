// Files that lie about themselves, byte by byte.
#ifndef WEFT_TESTS_ATTACKS_HOSTILE_FILES_H_
#define WEFT_TESTS_ATTACKS_HOSTILE_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::testing {

// Lists of YAML that name each other ten times: a few lines that stand for 10^12 values of `key`.
std::string AliasBomb(const std::string& key);

// A .npy file whose header is this text ("{'descr': '<f4', ...}"), and what follows it.
std::string NpyOf(const std::string& header, std::string_view data);
// One of four float32 zeros, [1,4].
std::string SmallNpy();

// One gzip member. `damaged`: its checksum is wrong, which only who reads to its end can tell.
std::string Gzip(std::string_view bytes, bool damaged = false);

// What the directory of a zip archive says of its one member, x.npy.
struct ZipLies {
  bool deflated = false;
  uint32_t packed_bytes = 0;  // 0: as it is
  uint32_t bytes = 0;         // 0: as it is
  std::string extra = {};     // fields of the directory, whole or not
  uint32_t directory = 0;     // where the directory begins; 0: as it is
  uint64_t members = 1;       // above 65535: in ZIP64's record
};
// An archive with the member x.npy.
std::string ZipOf(std::string_view content, const ZipLies& lies);
// ZIP64's field of a directory entry: these two sizes, cut after `length` bytes.
std::string Zip64Field(uint64_t bytes, uint64_t packed_bytes, uint16_t length = 16);

}  // namespace weft::testing

#endif  // WEFT_TESTS_ATTACKS_HOSTILE_FILES_H_
