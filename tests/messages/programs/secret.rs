//~ is not a secret
//~ read an environment variable with `std::env::var(…)?`

use tower_webhook::{ConfigError, scheme};

pub fn stripe() -> Result<scheme::Template, ConfigError> {
    scheme::stripe(std::env::var("STRIPE_SECRET"))
}
