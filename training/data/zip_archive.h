// ZipArchive: the members of a .zip or .npz file.
#ifndef WEFT_TRAINING_DATA_ZIP_ARCHIVE_H_
#define WEFT_TRAINING_DATA_ZIP_ARCHIVE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// Stored and deflated members, with or without ZIP64 (APPNOTE.TXT 6.3, pkware.com). Not read:
// encryption, archives in several parts. Borrows the bytes.
class ZipArchive {
 public:
  // Reads the directory at the end. DataLoss for a damaged file, InvalidArgument for what is no
  // archive.
  static absl::StatusOr<ZipArchive> Open(std::string_view bytes, std::string name);

  // In the order of the directory.
  std::vector<std::string> MemberNames() const;

  // A member's content, checked against its CRC-32. NotFound, listing what there is. Takes memory
  // for what the member really unpacks to, never for what it claims; InvalidArgument when that is
  // more than `max_bytes`, DataLoss when it is more than the directory says: either way, no more
  // than that is unpacked.
  absl::StatusOr<std::string> Read(const std::string& member,
                                   size_t max_bytes = size_t{16} << 30) const;
  // The first bytes of a member, at most so many, unchecked: what it is before it is all unpacked.
  absl::StatusOr<std::string> ReadBeginning(const std::string& member, size_t max_bytes) const;

 private:
  struct Member {
    std::string name;
    uint16_t flags = 0;
    uint16_t method = 0;
    uint32_t crc = 0;
    uint64_t packed_bytes = 0;
    uint64_t bytes = 0;
    uint64_t header = 0;  // offset of its local header
  };

  ZipArchive(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  absl::Status ReadDirectory(uint64_t offset, uint64_t size, uint64_t count);
  absl::Status ReadExtraField(std::string_view extra, Member& member) const;
  absl::StatusOr<const Member*> Find(const std::string& member) const;
  // The member's bytes as they lie in the file.
  absl::StatusOr<std::string_view> Packed(const Member& member) const;
  // Unpacks until there are `enough` bytes, or all.
  absl::StatusOr<std::string> Inflate(const Member& member, std::string_view packed,
                                      size_t enough) const;

  std::string_view bytes_;
  std::string name_;
  std::vector<Member> members_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_ZIP_ARCHIVE_H_
