// Ends well when this system can load the bundle's libstdc++: then its C library is new enough for all of the
// bundle.
#include <exception>

int main() {
  return std::uncaught_exceptions();
}
