// SocketProxy: a unix socket whose connections can be cut and closed.
#ifndef WEFT_TOOLS_CHAOS_SOCKET_PROXY_H_
#define WEFT_TOOLS_CHAOS_SOCKET_PROXY_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "platform/file_descriptor.h"

namespace weft {

// Listens at one path and passes each connection on to another, byte by byte, in a thread of its
// own. The methods may be called by any thread. The destructor closes all connections and removes
// the socket.
class SocketProxy {
 public:
  // Both are paths of sockets; who listens at `target` may come later: until then a connection is
  // closed as soon as it has been made. ResourceExhausted or the system's error.
  static absl::StatusOr<std::unique_ptr<SocketProxy>> Create(const std::string& path,
                                                             const std::string& target);
  SocketProxy(const SocketProxy&) = delete;
  SocketProxy& operator=(const SocketProxy&) = delete;
  ~SocketProxy();

  // While it is cut, nothing passes in either direction, and nobody is told: what is sent waits in
  // the sockets, as if packets were lost. A new connection is not taken.
  void SetCut(bool cut);
  // Closes all connections that exist now.
  void Reset();
  // Flips a bit in the middle of the next 64 bytes or more that pass at once, in any direction.
  void FlipBit();

 private:
  // What has been read of one side and not been written to the other.
  struct Direction {
    std::string bytes;
    size_t written = 0;
    bool has_ended = false;  // nothing more will be read
    bool is_empty() const { return written == bytes.size(); }
  };
  struct Connection {
    FileDescriptor ends[2];  // 0: of who connected, 1: to the target
    Direction from[2];       // from[i]: read from ends[i], for ends[1 - i]
    bool is_over = false;
  };

  SocketProxy(std::string path, std::string target, FileDescriptor listener,
              FileDescriptor wake_read, FileDescriptor wake_write);
  void Serve();
  void Accept();
  // Reads and writes what it can.
  void Move(Connection& connection, const short (&events)[2]);
  void Wake();

  const std::string path_;
  const std::string target_;
  const FileDescriptor listener_;
  const FileDescriptor wake_read_;
  const FileDescriptor wake_write_;
  std::atomic<bool> is_cut_{false};
  std::atomic<bool> is_reset_{false};
  std::atomic<bool> flips_{false};
  std::atomic<bool> is_ending_{false};
  std::vector<std::unique_ptr<Connection>> connections_;  // of the thread
  std::thread thread_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_SOCKET_PROXY_H_
