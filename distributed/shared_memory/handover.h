// How the memory of a ring comes to its reader: unix sockets in a folder of this user.
#ifndef WEFT_DISTRIBUTED_SHARED_MEMORY_HANDOVER_H_
#define WEFT_DISTRIBUTED_SHARED_MEMORY_HANDOVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/ids.h"
#include "platform/file_descriptor.h"

namespace weft {

// A rank of a job, and where the ranks of this machine meet. That a connection is made there shows
// that both ends run on one kernel, and the kernel says which user each end is.
struct RingPlace {
  std::string folder;  // of this user alone
  uint64_t job_id = 0;
  RankId rank;
};

// The folder for the workers of this user: below that for temporary files.
std::string RingFolder();

// Whose ring it is; the first message on a connection, with the ring's file.
struct RingGreeting {
  uint64_t job_id = 0;
  RankId from;  // the writer
  RankId to;
  std::string token;  // of the job's workers
};

// Where a rank waits for rings that it is to read. Used by one thread.
class RingListener {
 public:
  // Makes the folder, and removes sockets in it whose processes have ended. PermissionDenied for a
  // folder that others may enter; InvalidArgument for a path that is too long for a socket.
  static absl::StatusOr<std::unique_ptr<RingListener>> Listen(const RingPlace& place);
  ~RingListener();

  int socket() const { return socket_.get(); }
  // The next connection of a process of this user (or of root); none: nobody waits.
  std::optional<FileDescriptor> Accept();

 private:
  RingListener(FileDescriptor socket, std::string path)
      : socket_(std::move(socket)), path_(std::move(path)) {}
  const FileDescriptor socket_;
  const std::string path_;
};

// Connects to a rank. Nothing where none listens there: it does not run on this machine, or wants
// no rings. PermissionDenied where the listener is another user's. Waits a second at most.
absl::StatusOr<std::optional<FileDescriptor>> ConnectToRing(const RingPlace& place);

absl::Status SendGreeting(const FileDescriptor& connection, const RingGreeting& greeting,
                          int ring_file);
struct ReceivedGreeting {
  RingGreeting greeting;
  FileDescriptor ring_file;
};
// Does not wait: Unavailable where nothing has come. InvalidArgument for what is no greeting.
absl::StatusOr<ReceivedGreeting> ReceiveGreeting(const FileDescriptor& connection);

// What either end of a connection says after the greeting.
struct RingNotice {
  enum class Kind : uint8_t {
    kWake = 1,    // look at the ring
    kBeat = 2,    // I am there
    kAbort = 3,   // the job was aborted: `status` has the reason
    kClose = 4,   // I am done
    kRefuse = 5,  // of the reader: it does not take the ring, for the reason in `status`
  };
  Kind kind = Kind::kWake;
  absl::Status status = {};
};

// Never waits. Where the peer does not read what it was told, this is lost: it is frozen, and will
// be given up, or has enough to wake up by.
void Notify(const FileDescriptor& connection, RingNotice::Kind kind,
            const absl::Status& status = absl::OkStatus());
// The next notice; none: nothing has come. Never waits. Unavailable where the connection has ended,
// DataLoss where the peer says what is no notice.
absl::StatusOr<std::optional<RingNotice>> TakeNotice(const FileDescriptor& connection);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SHARED_MEMORY_HANDOVER_H_
